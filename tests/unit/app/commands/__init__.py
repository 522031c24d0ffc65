"""The commands: words, lines, screens and scripts."""
