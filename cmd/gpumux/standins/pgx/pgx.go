// Package pgx is what the server's driver for PostgreSQL names of it: there is none here.
package pgx

import "errors"

type (
	Conn       struct{}
	ConnConfig struct{}
	TypeMap    struct{}
)

func ParseConfig(string) (*ConnConfig, error) {
	return nil, errors.New("this program has no driver for PostgreSQL")
}

func (*Conn) TypeMap() *TypeMap                    { return nil }
func (*TypeMap) RegisterDefaultPgType(any, string) {}
