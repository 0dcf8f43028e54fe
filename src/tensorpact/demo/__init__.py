"""What the test suites and the demonstrations measure backends with."""
