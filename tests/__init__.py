"""Forebay's tests, by rung: unit, conformance, integration, chaos, tidy."""
