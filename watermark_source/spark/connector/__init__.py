"""What a connector implements: three protocols and a reader, and a file for each thing that only some systems have.

Imports no other package.
"""
