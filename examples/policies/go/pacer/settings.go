// SPDX-License-Identifier: Apache-2.0

package pacer

import "strconv"

// Problem is something wrong with the settings.
type Problem struct{ Path, Message string }

// Error says where and what.
func (p Problem) Error() string { return "settings are not usable: " + p.Path + ": " + p.Message }

// Settings are the JSON object of the policy set. There is no encoding/json here: with it every policy would be a megabyte larger.
type Settings struct {
	fields map[string]any
	wrong  []Problem
}

// Uint32 takes a number, or the default where it is not set.
func (s *Settings) Uint32(key string, standard uint32) uint32 {
	text, there := s.take(key).(number)
	if !there {
		return s.missing(key, "a number", standard).(uint32)
	}
	value, err := strconv.ParseUint(string(text), 10, 32)
	if err != nil {
		s.tell(key, "is "+string(text)+", must be 0 to 4294967295")
		return standard
	}
	return uint32(value)
}

// Text takes a string, or the default where it is not set.
func (s *Settings) Text(key, standard string) string {
	if text, there := s.take(key).(string); there {
		return text
	}
	return s.missing(key, "a string", standard).(string)
}

// Bool takes a truth value, or the default where it is not set.
func (s *Settings) Bool(key string, standard bool) bool {
	if value, there := s.take(key).(bool); there {
		return value
	}
	return s.missing(key, "true or false", standard).(bool)
}

// Refuse tells of a value that is of the right type and still wrong.
func (s *Settings) Refuse(key, message string) { s.tell(key, message) }

type number string

func (s *Settings) take(key string) any {
	value, there := s.fields[key]
	if there && value != nil {
		s.fields[key] = taken{value}
		return value
	}
	return nil
}

type taken struct{ value any }

func (s *Settings) missing(key, wanted string, standard any) any {
	if value, there := s.fields[key]; there && value != nil {
		s.tell(key, "must be "+wanted)
	}
	return standard
}

func (s *Settings) tell(path, message string) { s.wrong = append(s.wrong, Problem{path, message}) }

func (s *Settings) problems() []Problem {
	for key, value := range s.fields {
		if _, known := value.(taken); !known && value != nil {
			s.tell(key, "unknown field")
		}
	}
	return s.wrong
}

// parse reads an object of plain values; lists and objects within are kept as their text.
func parse(text string) *Settings {
	settings := &Settings{fields: map[string]any{}}
	p := &parser{text: text}
	if !p.object(settings.fields) || p.next() != 0 {
		settings.tell("", "they are no JSON object")
	}
	return settings
}

type parser struct {
	text string
	at   int
}

// next is the next byte that is no space; 0 at the end.
func (p *parser) next() byte {
	for ; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case ' ', '\n', '\r', '\t':
		default:
			return p.text[p.at]
		}
	}
	return 0
}

func (p *parser) skip(wanted byte) bool {
	if p.next() != wanted {
		return false
	}
	p.at++
	return true
}

func (p *parser) object(fields map[string]any) bool {
	if !p.skip('{') {
		return false
	}
	for first := true; !p.skip('}'); first = false {
		if !first && !p.skip(',') {
			return false
		}
		key, sound := p.quoted()
		if !sound || !p.skip(':') {
			return false
		}
		if fields[key], sound = p.value(); !sound {
			return false
		}
	}
	return true
}

func (p *parser) value() (any, bool) {
	switch next := p.next(); {
	case next == '"':
		return p.quoted()
	case next == '{' || next == '[':
		from, depth := p.at, 0
		for ; p.at < len(p.text); p.at++ {
			switch p.text[p.at] {
			case '"':
				if _, sound := p.quoted(); !sound {
					return nil, false
				}
				p.at--
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					p.at++
					return nested(p.text[from:p.at]), true
				}
			}
		}
		return nil, false
	}
	from := p.at
	for p.at < len(p.text) && p.text[p.at] > ' ' && p.text[p.at] != ',' && p.text[p.at] != '}' {
		p.at++
	}
	switch word := p.text[from:p.at]; word {
	case "null":
		return nil, true
	case "true", "false":
		return word == "true", true
	case "":
		return nil, false
	default:
		return number(word), true
	}
}

type nested string

func (p *parser) quoted() (string, bool) {
	if !p.skip('"') {
		return "", false
	}
	from := p.at - 1
	for ; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '\\':
			p.at++
		case '"':
			p.at++
			text, err := strconv.Unquote(p.text[from:p.at])
			return text, err == nil
		}
	}
	return "", false
}
