package devserver

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"golang.org/x/sys/unix"
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

// memoryDatabase lives as long as the process; the first connection fills it.
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

// searchAttributes are those of a new namespace, for searches of maps.
var searchAttributes = map[string]enums.IndexedValueType{
	names.SearchTask: enums.INDEXED_VALUE_TYPE_KEYWORD, names.SearchFailed: enums.INDEXED_VALUE_TYPE_INT,
}

// createNamespace runs before the server, so that the first call finds it.
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

const (
	lockName = "temporal.lock"
	// exiting is how long a process may take to end that has stopped using its folder.
	exiting, exitCheck = time.Second, 10 * time.Millisecond
)

// folder is a data folder that only this process uses while lock is open.
type folder struct {
	path string // absolute
	lock *os.File
}

// openFolder creates the folder when it is missing and locks it. The system releases the
// lock of a dead process; the lock file stays and names the last owner.
func openFolder(path string) (*folder, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("find data folder %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w; give another folder", err)
	}
	lock, err := os.OpenFile(filepath.Join(abs, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder is not writable: %w; make it writable, or give another folder", err)
	}
	if err := acquire(lock); err != nil {
		return nil, errors.Join(fmt.Errorf("lock data folder %s: %w", abs, err), lock.Close())
	}
	return &folder{path: abs, lock: lock}, nil
}

func acquire(lock *os.File) error {
	var err error
	for until := time.Now().Add(exiting); ; time.Sleep(exitCheck) {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(until) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("it is in use by another server (pid %s): stop that one, or give another folder", owner(lock))
	}
	if err != nil {
		return fmt.Errorf("%w; give another folder, on a file system with locks", err)
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func owner(lock *os.File) string {
	pid, _ := io.ReadAll(lock)
	return cmp.Or(strings.TrimSpace(string(pid)), "unknown")
}

func (f *folder) unlock() error {
	if err := f.lock.Close(); err != nil {
		return fmt.Errorf("unlock data folder %s: %w", f.path, err)
	}
	return nil
}
