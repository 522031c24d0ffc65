"""The suite of the store: one behaviour, over every log and every warm tier."""
