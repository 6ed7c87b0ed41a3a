"""The operations of the `ottla` command, without its arguments, its help and its tables.

- `formats/` converts records to text and back: format strings as kcat and rpk have them, and JSON lines.
- `dump/` reads the files of a log as rows, without a broker.
- `admin/` reads the state of a cluster through an admin client, and decides where replicas go.
- `follow`, `offsets`: reading records up to a limit; `inputs`, `sending`, `deliveries`: sending the lines of files.
- `benchmark`: what `ottla bench` measures.
- `values`, `client_kinds`, `profile_file`: settings from `-X NAME=VALUE`, files and profiles.
- `progress`, `suggestions`: the progress line, and the known word that a mistyped word stands for.

Errors for the person at the command line are a `Failure`. `late` lists the modules that take long to import.
"""
