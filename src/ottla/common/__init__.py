"""What every room may use: ids, error codes, clocks, completions. Imports nothing of Ottla's."""
