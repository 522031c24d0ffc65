"""The relay: HTTP in, onto local disk, HTTP out, for destinations that may be down."""
