"""Ids, error codes, clocks and completions for every package. Imports no other package of Ottla."""
