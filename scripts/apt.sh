# Sourced by the set-up scripts: installs Debian packages if that is allowed.

# Prints the command prefix to become root without a password: "" when already root, else "sudo -n"; fails if there is no way.
apt_prefix() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then
        echo ""
    elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then
        echo "sudo -n"
    else
        return 1
    fi
}

# apt_install PACKAGE...: installs the packages. Fails without asking if it may not or cannot.
apt_install() {
    prefix=$(apt_prefix) || return 1
    echo "setup: installing $*"
    install="$prefix env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends"
    # The package lists may be absent (fresh containers) or out of date: only then fetch them.
    $install "$@" >/dev/null 2>&1 && return 0
    $prefix apt-get update >/dev/null && $install "$@" >/dev/null
}
