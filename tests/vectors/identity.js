// Recomputes identity.json from docs/identity.md: `node tests/vectors/identity.js` prints [name, hash] per vector.
"use strict";
const { createHash } = require("node:crypto");
const { readFileSync } = require("node:fs");
const { join } = require("node:path");

function wtf8(text) {
  const bytes = [];
  for (const character of text) { // by code point: pairs of surrogates come joined, lone halves alone
    const point = character.codePointAt(0);
    if (point < 0x80) bytes.push(point);
    else if (point < 0x800) bytes.push(0xc0 | (point >> 6), 0x80 | (point & 0x3f));
    else if (point < 0x10000) bytes.push(0xe0 | (point >> 12), 0x80 | ((point >> 6) & 0x3f), 0x80 | (point & 0x3f));
    else {
      bytes.push(0xf0 | (point >> 18), 0x80 | ((point >> 12) & 0x3f));
      bytes.push(0x80 | ((point >> 6) & 0x3f), 0x80 | (point & 0x3f));
    }
  }
  return Buffer.from(bytes);
}

// A field is null or a list of parts; a part is a text, or a text and how often it is repeated.
const joinParts = (field) =>
  field.map((part) => (Array.isArray(part) ? part[0].repeat(part[1]) : part)).join("");

function hash(...fields) {
  const sha = createHash("sha256").update("latchguard/1\0", "latin1");
  for (const field of fields) {
    if (field === null) {
      sha.update(Buffer.from([0]));
      continue;
    }
    const bytes = wtf8(joinParts(field));
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(bytes.length));
    sha.update(Buffer.from([1])).update(length).update(bytes);
  }
  return sha.digest("hex");
}

const vectors = JSON.parse(readFileSync(join(__dirname, "identity.json"), "utf8"));
const found = vectors.map((v) => [v.name, hash(v.tool_name, v.tool_call_id, v.text)]);
process.stdout.write(JSON.stringify(found));
