package devserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	sqliteschema "go.temporal.io/server/schema/sqlite"
)

// unfinished marks a database whose creation was cut short.
const unfinished = ".new"

// createFile makes a database under another name and renames it when it is complete and on the disk, so a kill leaves no half database.
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
	if err := os.Rename(half, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// writeSchema writes the server's tables and version into an empty database.
func writeSchema(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := sqliteschema.SetupSchemaOnDB(schemaTarget{ctx: ctx, tx: tx}); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "CREATE TABLE gpumux_origin(server TEXT NOT NULL)"); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO gpumux_origin VALUES(?)", headers.ServerVersion); err != nil {
		return err
	}
	return tx.Commit()
}

// schemaTarget lets the server write its schema inside our transaction; it uses Exec alone.
type schemaTarget struct {
	sqlplugin.AdminDB
	ctx context.Context
	tx  *sql.Tx
}

func (s schemaTarget) Exec(statement string, args ...any) error {
	_, err := s.tx.ExecContext(s.ctx, statement, args...)
	return err
}

// checkSchema compares a file's tables with those that this server would create. The server itself does not check and would fail later,
// in the middle of its work. SQLite schemas have no migrations.
func checkSchema(ctx context.Context, path string) error {
	db, err := openSQLite("file:" + uriPath(path) + "?mode=rw&_pragma=busy_timeout%3D1000")
	if err != nil {
		return err
	}
	defer db.Close()
	found, err := readSchema(ctx, db)
	if err != nil {
		return fmt.Errorf("%w; it may be damaged: restore it, or choose another folder with --data", err)
	}
	expected, err := ownSchema(ctx)
	if err != nil {
		return err
	}
	if maps.Equal(found, expected) {
		return nil
	}
	made := "it was not made by gpumux"
	var version string
	if err := db.QueryRowContext(ctx, "SELECT server FROM gpumux_origin").Scan(&version); err == nil {
		made = "it was made for Temporal server " + version
	}
	return fmt.Errorf("%s, and its tables are not those of server %s: use the gpumux that made it, or choose another folder with --data",
		made, headers.ServerVersion)
}

func ownSchema(ctx context.Context) (map[string]string, error) {
	db, err := openSQLite(":memory:")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := writeSchema(ctx, db); err != nil {
		return nil, err
	}
	return readSchema(ctx, db)
}

// readSchema maps each table, index and trigger to the statement that makes it.
func readSchema(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_master")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	schema := map[string]string{}
	for rows.Next() {
		var name, statement string
		if err := rows.Scan(&name, &statement); err != nil {
			return nil, err
		}
		schema[name] = statement
	}
	return schema, rows.Err()
}
