"""Run the `penstock` command as `python -m penstock`."""

from penstock.cli.main import app

if __name__ == "__main__":
    app(prog_name="penstock")
