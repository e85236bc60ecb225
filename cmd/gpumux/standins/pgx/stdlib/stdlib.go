// Package stdlib makes no connections.
package stdlib

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
)

func GetDefaultDriver() driver.Driver                               { return nil }
func OptionAfterConnect(func(context.Context, *pgx.Conn) error) any { return nil }
func GetConnector(pgx.ConnConfig, ...any) driver.Connector          { return nil }
