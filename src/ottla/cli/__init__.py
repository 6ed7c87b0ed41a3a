"""The `ottla` command: one file per subcommand, named in `main.COMMANDS`, imported when it is chosen."""
