"""JSON Web Tokens beside API keys: who signs them, what they must say, and what they allow."""
