package devserver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqliteschema "go.temporal.io/server/schema/sqlite"
)

// unfinished marks a database whose creation was cut short.
const unfinished = ".new"

// createFile makes a database under another name and renames it when it is complete, so a
// kill leaves no half database.
func createFile(ctx context.Context, path string) error {
	half := path + unfinished
	if err := errors.Join(os.RemoveAll(half), os.RemoveAll(half+"-journal")); err != nil {
		return err
	}
	// SQLite's own files beside a database have its permissions.
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		return err
	}
	db, err := openSQLite("file:" + uriPath(half) + "?mode=rw&_pragma=synchronous%3Dfull")
	if err != nil {
		return err
	}
	if err := errors.Join(writeSchema(ctx, db), db.Close()); err != nil {
		return err
	}
	return os.Rename(half, path)
}

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

// writeSchema writes the server's tables and version into an empty database.
func writeSchema(ctx context.Context, db *sql.DB) error {
	list, hash, err := ownSchema()
	if err != nil {
		return err
	}
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

// checkSchema refuses a file whose tables another server made: the server would fail in
// the middle of its work. SQLite schemas have no migrations.
func checkSchema(ctx context.Context, path string) error {
	db, err := openSQLite("file:" + uriPath(path) + "?mode=rw&_pragma=busy_timeout%3D1000")
	if err != nil {
		return err
	}
	defer db.Close()
	_, own, err := ownSchema()
	if err != nil {
		return err
	}
	made := "it was not made by gpumux"
	var version, schema string
	switch err := db.QueryRowContext(ctx, "SELECT server, schema FROM gpumux_origin").Scan(&version, &schema); {
	case err == nil && schema == own:
		return nil
	case err == nil:
		made = "it was made for Temporal server " + version
	case !strings.Contains(err.Error(), "no such"):
		return fmt.Errorf("%w; it may be damaged: restore it, or give another folder", err)
	}
	return fmt.Errorf("%s, and its tables are not those of server %s: use the gpumux that made it, or give another folder",
		made, headers.ServerVersion)
}
