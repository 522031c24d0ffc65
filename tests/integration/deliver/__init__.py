"""Deliveries to real servers on loopback."""
