"""The `localmem` command. Each group of commands is a file that loads only when it is called, so help is instant.

Knows how errors reach a user: one line on stderr; exit 0 good, 1 failed, 2 misuse.
"""

import sys
from collections.abc import Mapping
from importlib import import_module

import click

from localmem.errors import BadInput, BadSettings, LocalmemError

# command -> (module:attribute, what it is for); the text is repeated here so that help loads no module
_COMMANDS: Mapping[str, tuple[str, str]] = {
    "chat": ("localmem.cli.chat:chat", "Talk to the model; it remembers."),
    "serve": ("localmem.cli.serve:serve", "Serve an OpenAI-compatible API with memory."),
    "remember": ("localmem.cli.memory:remember", "Read past conversations into memory."),
    "recall": ("localmem.cli.memory:recall", "Show what would be recalled for a text."),
    "show": ("localmem.cli.memory:show", "Show a memory: units, links, notes, history."),
    "rebuild": ("localmem.cli.memory:rebuild", "Read the raw log again, with another system if wished."),
    "reindex": ("localmem.cli.reindex:reindex", "Change over to the encoder that the settings name."),
    "undo": ("localmem.cli.memory:undo", "Take back what one session changed."),
    "forget": ("localmem.cli.memory:forget", "Erase a unit, a session or a user, with a receipt."),
    "export": ("localmem.cli.transfer:export", "Write one user's sessions and memory as JSONL."),
    "import": ("localmem.cli.transfer:import_", "Read what export wrote."),
    "models": ("localmem.cli.models:models", "List, pull, import, verify and bundle weights."),
    "eval": ("localmem.cli.eval:eval_", "Measure how good the memory and its parts are."),
    "bench": ("localmem.cli.bench:bench", "Measure latency and load."),
    "distill": ("localmem.cli.distill:distill", "Let small students learn a teacher's memory work."),
    "finetune": ("localmem.cli.finetune:finetune", "Train the small models on local data."),
    "systems": ("localmem.cli.systems:systems", "List the memory systems."),
    "demo": ("localmem.cli.demo:demo", "Show memory at work on a shipped conversation."),
    "doctor": ("localmem.cli.doctor:doctor", "Check what is installed, the models and the store."),
}


class _Lazy(click.Group):
    """A group that knows its commands' names and one-line help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="localmem")
def _root() -> None:
    """Long-term memory for a private chatbot, on this machine alone."""


def main() -> None:
    """Entry point: runs a command and turns errors into one line and an exit code."""
    try:
        _root.main(standalone_mode=False)
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
        sys.stderr.close()  # the reader of our output went away; there is nobody left to tell
        sys.exit(1)
