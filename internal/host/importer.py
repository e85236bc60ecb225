# Loads the target sys.argv[1] as a task process does: the file's folder, or the current one, comes first on the path.
import importlib, importlib.util, os, sys
target, _, name = sys.argv[1].rpartition(":")
if target.endswith(".py"):
    path = os.path.abspath(target)
    sys.path.insert(0, os.path.dirname(path))
    stem = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[stem] = module
    spec.loader.exec_module(module)
else:
    sys.path.insert(0, os.getcwd())
    module = importlib.import_module(target)
found = module
for part in name.split("."):
    if not hasattr(found, part):
        known = [n for n in dir(module) if callable(getattr(module, n)) and not n.startswith("_")]
        sys.exit("%s has no %s; it has: %s" % (target, part, ", ".join(known) or "no functions"))
    found = getattr(found, part)
if not callable(found):
    sys.exit("%s is not a function" % sys.argv[1])
