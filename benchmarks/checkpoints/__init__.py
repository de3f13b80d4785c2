"""What checkpoints take of memory, and what kills leave of them."""
