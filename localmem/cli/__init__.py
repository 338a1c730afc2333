"""The `localmem` command. Each command's module loads only when it is called, so help is instant.

Errors reach the user as one line on stderr. Exit codes: 0 success, 1 failure, 2 wrong usage.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module

import click

from localmem import network_guard
from localmem.errors import BadInput, BadSettings, LocalmemError, MissingExtra
from localmem.resources import checkout_root

# command -> (module:attribute, summary); the summary is repeated here so that help imports no module
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "chat": ("localmem.cli.chat:chat", "Chat with memory of past sessions."),
    "serve": ("localmem.cli.chat:serve", "Serve clients of OpenAI, Anthropic and Ollama with memory."),
    "keys": ("localmem.cli.keys:keys", "Make, list, rotate and revoke the server's API keys."),
    "mcp": ("localmem.cli.mcp:mcp", "Serve the memory to an MCP client on stdio."),
    "remember": ("localmem.cli.conversations:remember", "Import past conversations."),
    "recall": ("localmem.cli.memory:recall", "Show what the model would be shown."),
    "show": ("localmem.cli.memory:show", "Show a memory: units, links, notes, history."),
    "forget": (
        "localmem.cli.memory:forget",
        "Erase a unit, session or user for good; /forget in a chat hides.",
    ),
    "undo": ("localmem.cli.memory:undo", "Undo the changes of one session or batch."),
    "audit": ("localmem.cli.audit:audit", "Find junk and contradictions in memories."),
    "rebuild": ("localmem.cli.memory:rebuild", "Rebuild a memory from the raw log."),
    "reindex": ("localmem.cli.memory:reindex", "Re-embed all memories of all users with the configured encoder."),
    "sessions": ("localmem.cli.conversations:sessions", "List the sessions, the latest first."),
    "export": ("localmem.cli.conversations:export", "Export one user's sessions and memory."),
    "import": ("localmem.cli.conversations:import_", "Import what `export` wrote."),
    "card": ("localmem.cli.conversations:card", "Print a character card as settings."),
    "backup": ("localmem.cli.backup:backup", "Write all users' data into one file."),
    "restore": ("localmem.cli.backup:restore", "Restore the store from a backup."),
    "store": ("localmem.cli.store:store", "Encrypt the store, change its key, verify receipts."),
    "models": ("localmem.cli.models:models", "List, pull, import, verify and bundle models."),
    "settings": ("localmem.cli.overview:settings", "List all settings and their sources."),
    "systems": ("localmem.cli.overview:systems", "List the memory systems."),
    "doctor": ("localmem.cli.overview:doctor", "Check installation, models, store and network."),
    "demo": ("localmem.cli.overview:demo", "Show replies with and without memory."),
    "eval": ("localmem.cli.eval:eval_", "Evaluate the memory and its parts."),
    "bench": ("localmem.cli.bench:bench", "Measure latency, load and retrieval."),
    "distill": ("localmem.cli.distill:distill", "Distill a teacher's memory steps into small models."),
    "finetune": ("localmem.cli.finetune:finetune", "Train the small task models."),
}

# Commands that use the top-level package `finetune`, which is in a checkout only: a wheel would put it beside another
# project's package of that name.
_CHECKOUT_COMMANDS = ("distill", "finetune")


class _LazyGroup(click.Group):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name in _CHECKOUT_COMMANDS and checkout_root() is None:
            return _unavailable(cmd_name)
        module, attribute = _COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS and not ctx.resilient_parsing:  # which completion asks for
            from localmem.files import nearest

            ctx.fail(f"No such command {args[0]!r}{nearest(args[0], _COMMANDS)}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


def _unavailable(name: str) -> click.Command:
    """A command that only says what it needs, whatever its arguments."""

    def refuse() -> None:
        raise MissingExtra(
            f"`localmem {name}` needs a checkout of the project, because training is not part of the wheel; clone its "
            "repository, run scripts/setup there, and use .venv/bin/localmem"
        )

    summary = f"{_COMMANDS[name][1]} Needs a checkout of the project."
    any_arguments = {"ignore_unknown_options": True, "allow_extra_args": True}
    return click.Command(name, callback=refuse, help=summary, context_settings=any_arguments)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="localmem")
@click.option("--offline", is_flag=True, help="Connect to no other machine, not even those in the settings.")
def root(offline: bool) -> None:
    """Long-term memory for a private chatbot, on this machine alone.

    To complete commands and the names of systems, models and users, put this into ~/.bashrc (zsh_source for ~/.zshrc,
    fish_source for fish):

    \b
        eval "$(_LOCALMEM_COMPLETE=bash_source localmem)"
    """
    if offline:
        network_guard.seal()


def main() -> None:
    """Run a command; turn errors into one line and an exit code."""
    # OpenMP's threads wait for each other about a hundred times per embedding, and by default each spins for about a
    # millisecond before it releases its core. Where other processes need the cores too, such as a vLLM server on the
    # CPU, one embedding in twenty then takes hundreds of milliseconds instead of 25. OpenMP reads the variable when it
    # loads, so it is set before anything else; a vLLM server that localmem starts on a CPU gets OpenMP's own value.
    # It is set here, in this program's own process: importing the package must not change its host.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    network_guard.arm()
    try:
        root.main(standalone_mode=False, complete_var="_LOCALMEM_COMPLETE")
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(2)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        sys.exit(130)
    except (BadInput, BadSettings) as error:
        click.echo(f"localmem: {error}", err=True)
        sys.exit(2)
    except LocalmemError as error:
        click.echo(f"localmem: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone
        sys.exit(1)
