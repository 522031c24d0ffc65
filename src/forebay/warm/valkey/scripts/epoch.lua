-- The epoch that the shelf is in.
return current() or false
