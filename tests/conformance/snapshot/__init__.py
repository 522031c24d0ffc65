"""Every place of snapshots."""
