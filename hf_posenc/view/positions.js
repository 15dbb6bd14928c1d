// Sinusoidal encodings of positions: their distances, the turn from one position to another, and a plane of vectors.

// Describe the encoding of width d of the paper: the frequency of each pair, and the dimensions of sines and cosines.
function paperEncoding(d, base) {
  const frequencies = Array.from({ length: Math.ceil(d / 2) }, (_, pair) => base ** (-2 * pair / d));
  return { width: d, frequencies, sines: [0, 2], cosines: [1, 2] };
}

// Return the encoding of a position. Sines lie in the dimensions start, start + step, ...; cosines likewise.
function encodingOf(position, { width, frequencies, sines, cosines }) {
  const vector = new Float64Array(width);
  frequencies.forEach((frequency, pair) => {
    const [sine, cosine] = [sines, cosines].map(([start, step]) => start + pair * step);
    if (sine < width) vector[sine] = Math.sin(position * frequency);
    if (cosine < width) vector[cosine] = Math.cos(position * frequency);
  });
  return vector;
}

// Return a vector with each pair of dimensions turned back: the encoding of p becomes that of p - offset.
function turnedBack(vector, offset, { width, frequencies, sines, cosines }) {
  const turned = Float64Array.from(vector);
  frequencies.forEach((frequency, pair) => {
    const [sine, cosine] = [sines, cosines].map(([start, step]) => start + pair * step);
    if (sine >= width || cosine >= width) return;
    const angle = offset * frequency;
    turned[sine] = vector[sine] * Math.cos(angle) - vector[cosine] * Math.sin(angle);
    turned[cosine] = vector[cosine] * Math.cos(angle) + vector[sine] * Math.sin(angle);
  });
  return turned;
}

const lengthOf = (vector) => Math.sqrt(dot(vector, vector));
const ofLengthOne = (vector, length = lengthOf(vector)) => vector.map((value) => value / length);
const minusVector = (a, b) => a.map((value, index) => value - b[index]);

// Return the distances of positions that are 0, 1, ... `most` apart; they are the same at every position.
function distancesOf(most, encoding) {
  const first = encodingOf(0, encoding);
  return Array.from({ length: most + 1 }, (_, offset) => lengthOf(minusVector(encodingOf(offset, encoding), first)));
}

// Return Spearman's rank correlation of an increasing sequence and `values`, which has no equal ones.
function rankCorrelation(values) {
  const sorted = [...values].sort((a, b) => a - b), count = values.length;
  const squares = values.reduce((sum, value, index) => sum + (sorted.indexOf(value) - index) ** 2, 0);
  return 1 - (6 * squares) / (count * (count ** 2 - 1));
}

const cosine = (a, b) => dot(a, b) / lengthOf(a) / lengthOf(b);

// Return vectors less their mean.
function centered(vectors) {
  const mean = vectors[0].map((_, index) => vectors.reduce((sum, vector) => sum + vector[index], 0) / vectors.length);
  return vectors.map((vector) => minusVector(vector, mean));
}

// Return the two directions in which centered vectors differ most (PCA), found by power iteration.
function planeOf(vectors) {
  return [0, 1].map(() => {
    let direction = vectors[0];
    for (let step = 0; step < 100; step++) {
      const along = vectors.map((vector) => dot(vector, direction));
      direction = ofLengthOne(direction.map((_, index) => along.reduce((sum, one, row) => sum + one * vectors[row][index], 0)));
    }
    vectors = vectors.map((vector) => minusVector(vector, direction.map((value) => value * dot(vector, direction))));
    return direction;
  });
}
