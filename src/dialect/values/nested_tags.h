// Values that are written as tags in tags, as MiniMax M3 does:
//
//   <size><w>3</w><h>4</h></size>        ->  {"w":3,"h":4}
//   <list><item>1</item></list>          ->  [1]
//
// Each tag has a mark in front of it, which is what tells it from text.
// Threading:  a pure function.
// Cost:       O(bytes * depth), and the depth has a limit.
#pragma once

#include <string>
#include <string_view>

#include "dialect/values/schema_types.h"

namespace stemma::dialect {

// `open` is what a tag begins with, up to its name: "]<]minimax[>[<". What is not in tags is a
// plain value.
std::string nested_tags_as_json(std::string_view open, std::string_view written, ArgumentType type);

}  // namespace stemma::dialect
