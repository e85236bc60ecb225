#!/bin/sh
# Creates the two databases of Temporal, or brings them up to date. Run again it changes nothing.
# Host, port, user, password and plugin come from SQL_HOST, SQL_PORT, SQL_USER, SQL_PASSWORD and SQL_PLUGIN.
set -eu
setup() {
	temporal-sql-tool --database "$1" create
	temporal-sql-tool --database "$1" setup-schema --version 0.0
	temporal-sql-tool --database "$1" update-schema --schema-name "postgresql/v12/$2"
}
setup temporal temporal
setup temporal_visibility visibility
