"""Tiny random models for tests: real checkpoints in a folder, built in well under a second."""
