"""What happens to pushes before they are written."""
