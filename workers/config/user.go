package config

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpumux/gpumux/internal/process"
)

// resolveUser is the user that a field names, or nil; it reports what is wrong.
func resolveUser(text, at string, r *report) *process.User {
	if text == "" {
		return nil
	}
	found, err := lookupUser(text)
	if err == nil {
		err = process.CheckUsers()
	}
	if err != nil {
		r.add(at, "%v", err)
		return nil
	}
	return found
}

// lookupUser resolves name or number, with ":group" or without. A number that the system
// does not know needs a group.
func lookupUser(text string) (*process.User, error) {
	name, group, _ := strings.Cut(text, ":")
	known, err := user.Lookup(name)
	if err != nil {
		known, err = user.LookupId(name)
	}
	if _, number := strconv.ParseUint(name, 10, 32); err != nil && (number != nil || group == "") {
		return nil, fmt.Errorf("%q is no user of this machine; name one of /etc/passwd, or give numbers as user:group", name)
	} else if err != nil {
		known = &user.User{Uid: name, Username: name}
	}
	gid := known.Gid
	if group != "" {
		gid = group
		if found, err := user.LookupGroup(group); err == nil {
			gid = found.Gid
		}
	}
	u := &process.User{Name: known.Username, Home: known.HomeDir}
	if u.UID, err = id(known.Uid); err == nil {
		u.GID, err = id(gid)
	}
	if err != nil {
		return nil, fmt.Errorf("%q is no group of this machine; name one of /etc/group, or give its number", gid)
	}
	if u.UID == 0 {
		return nil, errors.New("root may do all that the worker may; name another user, or leave user out")
	}
	if more, err := known.GroupIds(); err == nil && known.HomeDir != "" {
		for _, each := range more {
			if n, err := id(each); err == nil {
				u.Groups = append(u.Groups, n)
			}
		}
	}
	if !u.HasHome() {
		u.Home = filepath.Join(os.TempDir(), "gpumux-"+known.Uid)
	}
	return u, nil
}

func id(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err
}
