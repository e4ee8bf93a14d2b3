"""Wait for windows of the flights stream, and say in the log which were published."""

from airflow.sdk import dag, task

from penstock.airflow import windows_asset


@dag(schedule=[windows_asset("flights")], catchup=False, tags=["penstock", "example"])
def new_windows() -> None:
    """Run whenever windows were published; several events may come in one run."""

    @task
    def tell(triggering_asset_events: object = None) -> list[dict[str, object]]:
        """Return what the events carry."""
        events = [event.extra for of_asset in dict(triggering_asset_events or {}).values() for event in of_asset]
        for event in events:
            print(f"{event['step']}: windows until {event['windows']['until']}, verdicts {event['verdicts']}")
        return events

    tell()


new_windows()
