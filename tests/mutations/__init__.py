"""Each protection is taken out of a copy of the source, to see that its test goes red: `make mutations`."""
