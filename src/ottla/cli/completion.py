"""Print what makes a shell complete `ottla`: commands, verbs, options, and names of topics, groups and profiles.

The script is static: it knows the commands of the version that printed it. Names of topics and groups are asked of the
cluster, for a second at most.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

EXAMPLES = """
eval "$(ottla completion bash)"      in ~/.bashrc
source <(ottla completion zsh)       in ~/.zshrc, after compinit
ottla completion fish | source       in ~/.config/fish/config.fish
"""

SHELLS = ("bash", "zsh", "fish")
_PATIENCE = "-X default.api.timeout.ms=1000"
_NAMES = {
    "topics": f"ottla topic list --quiet {_PATIENCE}",
    "groups": f"ottla group list --quiet {_PATIENCE}",
    "profiles": "ottla profile list --quiet",
}


class Option(NamedTuple):
    """One option: its spellings, what it does, and what its value is (None: it takes none)."""

    flags: tuple[str, ...]
    text: str
    value: str | None


class Place(NamedTuple):
    """A place in a command line, after a command and maybe a verb: what may follow there."""

    path: str
    words: dict[str, str]
    options: tuple[Option, ...]
    names: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def run(options: argparse.Namespace) -> int:
    """Print its script."""
    places = list(_places())
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell](places), end="")
    return 0


# -- what there is -----------------------------------------------------------------------------------------------


def _places() -> Iterator[Place]:
    from ottla.cli.main import COMMANDS, parser_for

    yield Place("", {name: summary for name, (_, summary) in COMMANDS.items()}, (), None)
    for name in COMMANDS:
        for action in parser_for(name)._actions:  # noqa: SLF001 - argparse shows what it knows nowhere else
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                yield from _of_parser(name, action.choices[name])


def _of_parser(path: str, parser: argparse.ArgumentParser) -> Iterator[Place]:
    words: dict[str, str] = {}
    options: list[Option] = []
    names: str | None = None
    below: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for row in action._choices_actions:  # noqa: SLF001
                words[row.dest] = row.help or ""
                below.append((f"{path} {row.dest}", action.choices[row.dest]))
        elif action.help == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            text = (action.help or "").replace("%%", "%")
            options.append(Option(tuple(action.option_strings), text, None if action.nargs == 0 else _kind(action)))
        elif action.choices:
            words.update((str(choice), "") for choice in action.choices)
        else:
            names = names or _kind(action) or None
    yield Place(path, words, tuple(options), names)
    for each in below:
        yield from _of_parser(*each)


def _kind(action: argparse.Action) -> str:
    """What a value is: names to ask for, files, directories, one of some words, or "" for anything."""
    if action.choices:
        return "words " + " ".join(map(str, action.choices))
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.dest == "profile":
        return "profiles"
    for start, kind in (("TOPIC", "topics"), ("GROUP", "groups"), ("PROFILE", "profiles")):
        if metavar.startswith(start):
            return kind
    if metavar == "KIND":
        from ottla.cli import config, config_quota

        return "words " + " ".join([*config.KINDS, *config_quota.KINDS])
    return {"FILE": "files", "PATH": "files", "SEGMENT": "files", "DIR": "directories"}.get(metavar, "")


# -- bash --------------------------------------------------------------------------------------------------------

_BASH = """\
# bash completion for ottla, printed by `ottla completion bash`
_ottla_names() {
    local connection=() word previous=
    for word in "${words[@]}"; do
        case $previous in
            -b | --bootstrap-server | --profile | --command-config) connection+=("$previous" "$word") ;;
        esac
        previous=$word
    done
    case $1 in
@NAMES@
    esac
}
_ottla_reply() {
    local IFS=$'\\n'
    case $1 in
        files) COMPREPLY=($(compgen -f -- "$cur")) ;;
        directories) COMPREPLY=($(compgen -d -- "$cur")) ;;
        topics | groups | profiles)
            # Not compgen -W, which would expand what a stranger called a group.
            while read -r word; do
                [[ $word == "$cur"* && $word =~ ^[A-Za-z0-9._:@/-]+$ ]] && COMPREPLY+=("$word")
            done < <(_ottla_names "$1") ;;
        words) COMPREPLY=($(compgen -W "$2" -- "$cur")) ;;
    esac
}
_ottla() {
    local cur=${COMP_WORDS[COMP_CWORD]} words word path= prev=ottla
    read -ra words <<<"${COMP_LINE:0:COMP_POINT}"
    [[ ${COMP_LINE:COMP_POINT-1:1} == [[:space:]] ]] || unset "words[${#words[@]}-1]"
    for word in "${words[@]:1}"; do
        case "|@PATHS@|" in *"|${path:+$path }$word|"*) path=${path:+$path }$word ;; esac
        prev=$word
    done
    COMPREPLY=()
    case $path in
@PLACES@
    esac
}
complete -o filenames -o bashdefault -F _ottla ottla
"""


def _bash(places: list[Place]) -> str:
    names = [f'        {kind}) {command} "${{connection[@]}}" 2>/dev/null ;;' for kind, command in _NAMES.items()]
    names[-1] = names[-1].replace(' "${connection[@]}"', "")
    blocks = []
    for place in places:
        lines = [f"        {_single(place.path)})"]
        valued = [option for option in place.options if option.value is not None]
        if valued:
            lines.append("            case $prev in")
            lines += [
                f"                {' | '.join(option.flags)}) {_bash_reply(option.value or '')}return ;;"
                for option in valued
            ]
            lines.append("            esac")
        flags = _lines(flag for option in place.options for flag in option.flags)
        if flags:
            lines.append(f"            if [[ $cur == -* ]]; then _ottla_reply words {flags}")
            lines.append("            else " + (_bash_reply(_follows(place)).strip("; ") or ":"))
            lines.append("            fi")
        else:
            lines.append("            " + (_bash_reply(_follows(place)).strip("; ") or ":"))
        blocks.append("\n".join([*lines, "            ;;"]))
    text = _BASH.replace("@NAMES@", "\n".join(names)).replace("@PLACES@", "\n".join(blocks))
    return text.replace("@PATHS@", "|".join(place.path for place in places if place.path))


def _bash_reply(kind: str) -> str:
    if kind.startswith("words "):
        return f"_ottla_reply words {_lines(kind.split()[1:])}; "
    return f"_ottla_reply {kind}; " if kind else ""


def _follows(place: Place) -> str:
    return "words " + " ".join(place.words) if place.words else place.names or ""


def _lines(words: object) -> str:
    """Words as one argument of bash, a line each."""
    listed = list(words)  # type: ignore[call-overload]
    return "$'" + "\\n".join(listed) + "'" if listed else ""


# -- zsh ---------------------------------------------------------------------------------------------------------

_ZSH = """\
#compdef ottla
# zsh completion for ottla, printed by `ottla completion zsh`
_ottla_names() {
    local -a connection found
    local i
    for ((i = 2; i < CURRENT - 1; i++)); do
        case $words[i] in
            -b|--bootstrap-server|--profile|--command-config) connection+=("$words[i]" "$words[i+1]") ;;
        esac
    done
    case $1 in
@NAMES@
    esac
    compadd -a found
}
_ottla_reply() {
    case $1 in
        files) _files ;;
        directories) _files -/ ;;
        topics|groups|profiles) _ottla_names $1 ;;
        words) compadd -- ${=2} ;;
    esac
}
_ottla() {
    local at= word i previous=$words[CURRENT-1]
    local -a rows
    for ((i = 2; i < CURRENT; i++)); do
        case "|@PATHS@|" in *"|${at:+$at }$words[i]|"*) at=${at:+$at }$words[i] ;; esac
    done
    case $at in
@PLACES@
    esac
}
if [ "$funcstack[1]" = "_ottla" ]; then _ottla "$@"; else compdef _ottla ottla; fi
"""


def _zsh(places: list[Place]) -> str:
    names = [
        f'        {kind}) found=(${{(f)"$({command} $connection 2>/dev/null)"}}) ;;' for kind, command in _NAMES.items()
    ]
    names[-1] = names[-1].replace(" $connection", "")
    blocks = []
    for place in places:
        lines = [f"        {_single(place.path)})"]
        valued = [option for option in place.options if option.value is not None]
        if valued:
            lines.append("            case $previous in")
            lines += [
                f"                {'|'.join(option.flags)}) {_zsh_reply(option.value or '')}return ;;"
                for option in valued
            ]
            lines.append("            esac")
        rows = [_zsh_row(flag, option.text) for option in place.options for flag in option.flags]
        rest = [_zsh_row(word, text) for word, text in place.words.items()]
        if rows:
            lines.append(
                f"            if [[ $PREFIX == -* ]]; then rows=({' '.join(rows)}); _describe option rows; return; fi"
            )
        if rest:
            lines.append(f"            rows=({' '.join(rest)}); _describe command rows")
        elif place.names:
            lines.append(f"            {_zsh_reply(place.names).strip('; ')}")
        blocks.append("\n".join([*lines, "            ;;"]))
    text = _ZSH.replace("@NAMES@", "\n".join(names)).replace("@PLACES@", "\n".join(blocks))
    return text.replace("@PATHS@", "|".join(place.path for place in places if place.path))


def _zsh_reply(kind: str) -> str:
    if kind.startswith("words "):
        return f"_ottla_reply words {_single(kind.removeprefix('words '))}; "
    return f"_ottla_reply {kind}; " if kind else ""


def _zsh_row(word: str, text: str) -> str:
    return _single(word.replace(":", "\\:") + (f":{_brief(text)}" if text else ""))


# -- fish --------------------------------------------------------------------------------------------------------

_FISH = """\
# fish completion for ottla, printed by `ottla completion fish`
set -g __ottla_paths @PATHS@
function __ottla_at
    set -l path
    for word in (commandline -opc)[2..-1]
        set -l next (string trim -- "$path $word")
        contains -- $next $__ottla_paths; and set path $next
    end
    test "$path" = "$argv[1]"
end
function __ottla_names
    set -l connection
    set -l words (commandline -opc)
    for i in (seq (math (count $words) - 1))
        contains -- $words[$i] -b --bootstrap-server --profile --command-config
        and set connection $connection $words[$i] $words[(math $i + 1)]
    end
    switch $argv[1]
@NAMES@
    end
end
complete -c ottla -f
"""


def _fish(places: list[Place]) -> str:
    names = "\n".join(
        f"        case {kind}\n            {command}{'' if kind == 'profiles' else ' $connection'} 2>/dev/null"
        for kind, command in _NAMES.items()
    )
    paths = " ".join(_fish_quoted(place.path) for place in places if place.path)
    lines = [_FISH.replace("@NAMES@", names).replace("@PATHS@", paths).rstrip("\n")]
    for place in places:
        here = f"complete -c ottla -n {_fish_quoted('__ottla_at ' + _fish_quoted(place.path))}"
        lines += [
            f"{here} -a {_fish_quoted(word)}" + (f" -d {_fish_quoted(_brief(text))}" if text else "")
            for word, text in place.words.items()
        ]
        if place.names and not place.words:
            lines.append(here + _fish_values(place.names))
        for option in place.options:
            flags = "".join(f" -l {f[2:]}" if f.startswith("--") else f" -s {f[1:]}" for f in option.flags)
            value = "" if option.value is None else _fish_taken(option.value)
            lines.append(f"{here}{flags}{value} -d {_fish_quoted(_brief(option.text))}")
    return "\n".join(lines) + "\n"


def _fish_taken(kind: str) -> str:
    """That an option takes a value, and what it may be: no files unless it is one."""
    return (" -r" if kind in ("files", "directories") else " -x") + _fish_values(kind)


def _fish_values(kind: str) -> str:
    if kind.startswith("words "):
        return f" -a {_fish_quoted(kind.removeprefix('words '))}"
    if kind in _NAMES:
        return f" -a {_fish_quoted(f'(__ottla_names {kind})')}"
    if kind == "directories":
        return " -a '(__fish_complete_directories)'"
    return " -F" if kind == "files" else ""


# -- text --------------------------------------------------------------------------------------------------------


def _brief(text: str) -> str:
    """The first part of a help text."""
    first = " ".join(text.split()).partition(";")[0]
    return first if len(first) <= 70 else f"{first[:69]}…"


def _single(text: str) -> str:
    """Quoted for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
