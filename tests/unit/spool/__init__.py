"""Tests of the spool that need no disk, but for those that say so."""
