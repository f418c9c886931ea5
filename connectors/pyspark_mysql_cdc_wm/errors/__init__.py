"""What can be wrong, and the error that says so. Imports no other package."""
