"""What makes a release: machine code of the decoders, and the wheel that has it."""
