"""The fast path of decoding, in kernels; `reference` says what it must give."""
