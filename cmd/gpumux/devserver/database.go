package devserver

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/headers"
	"go.temporal.io/server/common/persistence/sql/sqlplugin"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	databaseName = "temporal.db"
	driverName   = "sqlite"
)

// opened numbers the databases of one process.
var opened atomic.Int64

// database is where one server keeps its state.
type database struct {
	name       string            // as it stands in a SQLite URI
	attributes map[string]string // of the server's connection
}

// memoryDatabase lives as long as the process; the first connection fills it.
func memoryDatabase() database {
	return database{
		name:       "devserver-" + strconv.FormatInt(opened.Add(1), 10),
		attributes: map[string]string{"mode": "memory", "cache": "shared"},
	}
}

// openFile opens the database of a data folder, and makes both when there are none.
func openFile(ctx context.Context, folder string) (database, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return database{}, fmt.Errorf("find data folder %s: %w", folder, err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return database{}, fmt.Errorf("create data folder: %w; give another folder", err)
	}
	path := filepath.Join(folder, databaseName)
	// SQLite's own files beside a database have its permissions.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return database{}, fmt.Errorf("open database: %w; make the folder writable, or give another folder", err)
	}
	if err := errors.Join(file.Chmod(0o600), file.Close(), prepareFile(ctx, path)); err != nil {
		return database{}, fmt.Errorf("open database %s: %w", path, err)
	}
	return database{
		name: uriPath(path),
		attributes: map[string]string{
			"mode": "rw",
			// The driver sets them by name, and locking_mode has to come first. In WAL a commit
			// is one append. Exclusive, it asks for no locks, which are 15 requests to NFS.
			"locking_mode": "exclusive", "main.journal_mode": "wal",
			"synchronous":  "1", // no wait for the disk at a commit: a dead process loses nothing, a power cut the last moments
			"busy_timeout": "10000",
			// The server's pool keeps a connection per URI, even when the file is replaced. SQLite
			// ignores this setting, which makes each start's URI its own.
			"gpumux_start": strconv.FormatInt(opened.Add(1), 10),
		},
	}, nil
}

func uriPath(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// config is a copy: the server may change it.
func (d database) config() *config.SQL {
	return &config.SQL{PluginName: sqlite.PluginName, DatabaseName: d.name, ConnectAttributes: maps.Clone(d.attributes)}
}

// createNamespace runs before the server, so that the first call finds it.
func (d database) createNamespace() error {
	c, err := sqliteschema.NewNamespaceConfig(clusterName, namespace, false, nil)
	if err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	c.Detail.Config.Retention = durationpb.New(retention)
	if err := sqliteschema.CreateNamespaces(d.config(), c); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	return nil
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
