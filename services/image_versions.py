"""Images of the servers that run in containers; ``docker-compose.yml`` has the same."""

from __future__ import annotations

from typing import Final

from services.kafka_local import KAFKA_VERSION
from services.mysql_program import Flavour

KAFKA: Final = f"apache/kafka:{KAFKA_VERSION}"
MYSQL: Final = {Flavour.MYSQL: "mysql:9.7", Flavour.MARIADB: "mariadb:11.8"}
POSTGRES: Final = "postgres:18"
