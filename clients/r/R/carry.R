# Makes of a function what another R session can call: the function with the globals that it uses, and theirs, and the packages that it
# finds attached. The same function gives the same bytes in every session, so that the same call is the same map.

carry <- function(f) {
  seen <- list()
  packages <- character()
  # The place in the copy of an environment of this session.
  mirror <- function(env) {
    if (stays(env)) return(env)
    for (pair in seen) if (identical(pair$from, env)) return(pair$to)
    to <- new.env(hash = FALSE, parent = if (identical(env, globalenv())) env else mirror(parent.env(env)))
    seen[[length(seen) + 1L]] <<- list(from = env, to = to)
    to
  }
  bring <- function(f) {
    if (is.primitive(f) || stays(environment(f))) return(f)
    called <- codetools::findGlobals(f)
    for (name in c(called, methods_of(called))) {
      owner <- owner_of(name, environment(f))
      if (is.null(owner)) next
      if (stays(owner)) {
        packages <<- union(packages, sub("^package:", "", environmentName(owner)))
        next
      }
      to <- mirror(owner)
      if (exists(name, to, inherits = FALSE)) next
      value <- get(name, owner)
      assign(name, value, to)
      if (is.function(value)) assign(name, bring(value), to)
    }
    # Neither byte code nor references to source files, which differ between sessions.
    plain <- utils::removeSource(f)
    environment(plain) <- mirror(environment(f))
    plain
  }
  copy <- bring(f)
  # Those that were attached last hide names of the others.
  list(f = copy, packages = rev(intersect(sub("^package:", "", search()), setdiff(packages, ordinary))))
}

# The session's own methods of these generics, and of groups of them.
methods_of <- function(generics) {
  own <- Filter(function(name) is.function(get(name, globalenv())), ls(globalenv(), all.names = TRUE))
  begin <- paste0(c(generics, "Ops", "Math", "Summary"), ".")
  Filter(function(name) any(startsWith(name, begin)), own)
}

# Packages that every R has attached.
ordinary <- c("base", "methods", "datasets", "utils", "grDevices", "graphics", "stats", "gpumux")

# Whether other sessions have an environment, too.
stays <- function(env) {
  isNamespace(env) || identical(env, baseenv()) || identical(env, emptyenv()) || startsWith(environmentName(env), "package:")
}

# The environment in which a function finds a name; NULL when there is none.
owner_of <- function(name, env) {
  while (!identical(env, emptyenv())) {
    if (exists(name, env, inherits = FALSE)) return(env)
    if (isNamespace(env)) return(NULL)
    env <- parent.env(env)
  }
  NULL
}
