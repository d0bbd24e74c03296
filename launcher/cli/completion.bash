%(complete_func)s() {
    local IFS=$'\n' word=${COMP_WORDS[COMP_CWORD]} words type value
    words="${COMP_WORDS[*]:0:COMP_CWORD+1}"
    words=${words//$'\n='/=}
    words=${words//=$'\n'/=}
    [[ $word == = ]] && word=
    local lines=${words//[!$'\n']/} before=${words##*$'\n'}
    before=${before%%"$word"}
    before=${before#-*=}
    COMPREPLY=()
    while IFS=, read -r type value; do
        value=${value#"$before"}
        case $type in
            dir) compopt -o filenames; COMPREPLY+=($(compgen -d -- "$word")) ;;
            file) compopt -o filenames; COMPREPLY+=($(compgen -f -- "$word")) ;;
            plain)
                COMPREPLY+=("$value")
                [[ $value == *[/.=] ]] && compopt -o nospace ;;
        esac
    done < <(env COMP_WORDS="$words" COMP_CWORD=${#lines} %(complete_var)s=bash_complete "$1")
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
