"""What kernels are made of: how they are compiled, memory, hashing, arithmetic."""
