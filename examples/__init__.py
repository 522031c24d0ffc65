"""Programs to try Forebay with, and to begin your own from."""
