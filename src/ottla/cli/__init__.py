"""The `ottla` command. One file per subcommand, imported when it is asked for."""
