package devserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gpumux/gpumux/internal/names"
)

const (
	databaseName = "temporal.db"
	driverName   = "sqlite"
)

// opened numbers the databases of one process.
var opened atomic.Int64

// database is where one server keeps its state. The zero value is none.
type database struct {
	path       string            // of the file; "" in memory
	name       string            // as it stands in a SQLite URI
	attributes map[string]string // of the server's connection
}

// memoryDatabase lives as long as the process. The server's first connection creates its schema.
func memoryDatabase() database {
	return database{
		name:       "devserver-" + strconv.FormatInt(opened.Add(1), 10),
		attributes: map[string]string{"mode": "memory", "cache": "shared"},
	}
}

// openFile opens the database of a data folder, and makes it when there is none.
func openFile(ctx context.Context, folder string) (database, error) {
	path := filepath.Join(folder, databaseName)
	switch _, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
		if err := createFile(ctx, path); err != nil {
			return database{}, fmt.Errorf("create database %s: %w", path, err)
		}
	case err != nil:
		return database{}, fmt.Errorf("open database: %w", err)
	default:
		if err := checkSchema(ctx, path); err != nil {
			return database{}, fmt.Errorf("open database %s: %w", path, err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return database{}, fmt.Errorf("keep others from the database: %w", err)
		}
	}
	return database{
		path: path,
		name: uriPath(path),
		attributes: map[string]string{
			"mode":         "rw",
			"journal_mode": "wal", // a commit is one append, and readers do not wait for it
			"synchronous":  "1",   // no wait for the disk at a commit: a dead process loses nothing, a power cut the last moments
			"busy_timeout": "10000",
			// The server's pool keeps a connection per URI until the process ends, even when the file is replaced. SQLite ignores
			// unknown settings, so this one gives every start a new connection.
			"gpumux_start": strconv.FormatInt(opened.Add(1), 10),
		},
	}, nil
}

func uriPath(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// config is a copy: the server may change it.
func (d database) config() *config.SQL {
	return &config.SQL{PluginName: sqlite.PluginName, DatabaseName: d.name, ConnectAttributes: maps.Clone(d.attributes)}
}

// searchAttributes are those of a new namespace, for searches of maps.
var searchAttributes = map[string]enums.IndexedValueType{
	names.SearchTask: enums.INDEXED_VALUE_TYPE_KEYWORD, names.SearchFailed: enums.INDEXED_VALUE_TYPE_INT,
}

// createNamespace writes the namespace before the server runs, so the first call finds it.
func (d database) createNamespace() error {
	c, err := sqliteschema.NewNamespaceConfig(clusterName, namespace, false, searchAttributes)
	if err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	c.Detail.Config.Retention = durationpb.New(retention)
	if err := sqliteschema.CreateNamespaces(d.config(), c); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	return nil
}

// close moves the write-ahead log into the database file, which then is complete.
func (d database) close() error {
	if d.path == "" {
		return nil
	}
	db, err := openSQLite("file:" + uriPath(d.path) + "?mode=rw&_pragma=busy_timeout%3D1000")
	if err != nil {
		return fmt.Errorf("close database %s: %w", d.path, err)
	}
	var busy, pages, moved int
	err = db.QueryRow("PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("close database %s: %w", d.path, err)
	}
	return nil
}

// openSQLite opens a database for this package, not the server, through one connection.
func openSQLite(uri string) (*sql.DB, error) {
	db, err := sql.Open(driverName, uri)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}
