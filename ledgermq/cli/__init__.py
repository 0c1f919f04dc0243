"""Entry points: the console command ``ledgermq`` and its subcommands.

`main.py` holds the table of commands and the exit codes; each other file is one command or one noun
of the admin commands. Nobody imports this room. The global reactor is imported only here.
"""
