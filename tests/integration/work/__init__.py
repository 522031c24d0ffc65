"""Workers on real stores."""
