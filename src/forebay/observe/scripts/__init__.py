"""The Lua scripts of snapshots on Valkey: one verb each."""
