"""The image, built from the Dockerfile, and every role run from it."""
