// Package pgconn has the error that PostgreSQL would give.
package pgconn

type PgError struct{ Code, Message string }

func (e *PgError) Error() string { return e.Message }
