import { connect, createServer, type Server, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, it } from 'vitest'
import { waitUntil } from '../../sandbox/wait-until.ts'
import { type CuttingProxy, startCuttingProxy } from '../rig/cutting-proxy.ts'

let server: Server
let proxy: CuttingProxy
let got = ''
let answered = ''
let served: Socket[] = []
let client: Socket

const become = async (what: () => boolean) => expect(await waitUntil(what, 3000)).toBe(true)

beforeEach(async () => {
  got = ''
  answered = ''
  served = []
  server = createServer(socket => {
    served.push(socket)
    socket.on('error', () => undefined)
    socket.on('data', data => {
      got += String(data)
      socket.write(`(${String(data)})`)
    })
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  proxy = await startCuttingProxy(() => (server.address() as { port: number }).port)
  client = connectTo()
  client.write('a')
  await become(() => answered === '(a)')
})

afterEach(async () => {
  client.destroy()
  await proxy.stop()
  for (const socket of served) socket.destroy()
  await new Promise(resolve => server.close(resolve))
})

function connectTo(): Socket {
  const socket = connect(proxy.port, '127.0.0.1')
  socket.on('error', () => undefined)
  socket.on('data', data => (answered += String(data)))
  return socket
}

it('with the way back cut the server gets what was sent and its answer is late', async () => {
  proxy.cut('back')
  client.write('b')
  await become(() => got === 'ab')
  expect(answered).toBe('(a)')
  proxy.heal()
  await become(() => answered === '(a)(b)')
})

it('with the way there cut nothing arrives until it is whole again, and then all of it does, in order', async () => {
  proxy.cut('there')
  client.write('b')
  client.write('c')
  served[0]?.write('!')
  await become(() => answered === '(a)!')
  expect(got).toBe('a')
  proxy.heal()
  await become(() => got === 'abc')
})

it('an end that closes during the cut is told of afterwards, and what it had sent before still arrives', async () => {
  proxy.cut('there')
  client.write('b')
  client.end()
  const second = connectTo()
  second.write('x')
  await become(() => second.readyState === 'open')
  expect([got, served.length]).toEqual(['a', 1])
  proxy.heal()
  await become(() => got.includes('b') && got.includes('x') && served.length === 2)
  await become(() => served[0]?.readableEnded === true || served[0]?.destroyed === true)
  second.destroy()
})
