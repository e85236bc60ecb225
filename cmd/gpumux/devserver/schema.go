package devserver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strings"

	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqliteschema "go.temporal.io/server/schema/sqlite"
)

// statements collects those that make the server's tables; the server uses Exec alone.
type statements struct {
	sqlplugin.AdminDB
	list []string
}

func (s *statements) Exec(statement string, _ ...any) error {
	s.list = append(s.list, statement)
	return nil
}

// ownSchema has the statements that make this server's tables, and their hash.
func ownSchema() (list []string, hash string, err error) {
	var s statements
	err = sqliteschema.SetupSchemaOnDB(&s)
	sum := sha256.Sum256([]byte(strings.Join(s.list, "\n")))
	return s.list, hex.EncodeToString(sum[:]), err
}

// prepareFile makes the server's tables in an empty database. It refuses one whose tables
// another server made: SQLite schemas have no migrations, so the server would fail in the
// middle of its work.
func prepareFile(ctx context.Context, path string) error {
	db, err := sql.Open(driverName, "file:"+uriPath(path)+"?mode=rw&_pragma=busy_timeout%3D1000&_pragma=synchronous%3Dfull&_pragma=locking_mode%3Dexclusive")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	list, hash, err := ownSchema()
	if err != nil {
		return err
	}
	var tables int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil {
		return fmt.Errorf("%w; it may be damaged: restore it, or give another folder", err)
	}
	if tables == 0 {
		return writeSchema(ctx, db, list, hash)
	}
	var version, schema string
	err = db.QueryRowContext(ctx, "SELECT server, schema FROM gpumux_origin").Scan(&version, &schema)
	made := "it was made for Temporal server " + version
	switch {
	case err != nil:
		made = fmt.Sprintf("it was not made by gpumux (%v)", err)
	case schema == hash:
		return nil
	}
	return fmt.Errorf("%s, and its tables are not those of server %s: use the gpumux that made it, or give another folder",
		made, headers.ServerVersion)
}

// writeSchema writes the server's tables and version in one transaction, so a kill leaves
// an empty database.
func writeSchema(ctx context.Context, db *sql.DB, list []string, hash string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, statement := range append(list, "CREATE TABLE gpumux_origin(server TEXT NOT NULL, schema TEXT NOT NULL)") {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO gpumux_origin VALUES(?, ?)", headers.ServerVersion, hash); err != nil {
		return err
	}
	return tx.Commit()
}
